"""What is asked of an entity beside sending and receiving, over all of its fragments."""
