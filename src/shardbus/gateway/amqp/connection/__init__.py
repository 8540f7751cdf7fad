"""AMQP connections: the engine between a transport and the bus, its limits and its counts."""
