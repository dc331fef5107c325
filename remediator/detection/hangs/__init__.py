"""Who keeps a stuck job waiting: a wait-for graph over what each rank called last, chased to its sinks. Pure."""
