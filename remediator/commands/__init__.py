"""The commands of the centre beside `serve`: its store, its tokens, its messages. One file a group."""
