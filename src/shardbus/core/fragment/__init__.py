"""The fragment as a state machine: commands in; changes for the store and answers out."""
