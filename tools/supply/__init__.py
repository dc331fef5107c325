"""Third-party packages: reads the lock files, writes bills of materials, audits vulnerabilities."""
