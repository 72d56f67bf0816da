"""Tables, statistics, snapshots and maps: what the app, exports and command line read."""
