"""The centre: findings of many nodes in, decisions and bounded actions out. Never imported by a node."""
