"""Queues, topics, subscriptions and their rules in the JSON API."""
