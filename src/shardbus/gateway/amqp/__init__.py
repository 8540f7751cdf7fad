"""The AMQP gateway: an asyncio shell over `shardbus.amqp`, links on one side, the bus on the other.

Each link is answered by one object: Inbound (a client sends), Outbound (a client receives), or a
request/response node ($cbs, $management). Nothing here owns a message or decides a rule.
"""
