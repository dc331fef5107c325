"""Issue, list, rotate and revoke credentials: over the API as an admin, or directly in a local database.

`healthctl.commands.token_command` and `enroll_command` call it.
It may import `api_client` and the remediator's token store; what a token permits is the remediator's part.
"""
