"""The ingest process: carries messages between nodes on NATS and the controller's API, whose client it is.

Optional; the only part of the controller that imports nats and nacl. It holds no state: a message leaves the stream
after the leader has answered it. Imports nothing of the controller but `remediator.model`.
"""
