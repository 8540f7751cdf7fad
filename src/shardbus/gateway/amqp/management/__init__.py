"""The request nodes: $cbs, and $management of an entity."""
