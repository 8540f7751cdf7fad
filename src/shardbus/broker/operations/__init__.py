"""Operations on an entity other than sending and receiving, over all of its fragments."""
