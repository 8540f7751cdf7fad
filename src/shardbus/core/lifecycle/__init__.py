"""The lifecycle of messages, as records that a fragment stores with its decisions."""
