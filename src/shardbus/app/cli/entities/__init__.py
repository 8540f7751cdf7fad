"""Commands about queues, topics, subscriptions, rules, access rules and pipelines."""
