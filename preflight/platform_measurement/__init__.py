"""Measures a platform that nobody has measured, in one session, into one file: `preflight day`.

Here live the file's records, the order of the stages, and what follows from the measurements. Runs of tests are those of
`preflight.execution`; the session drives them.
"""
