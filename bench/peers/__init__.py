"""The servers that are measured, each started by the bench on loopback ports of its own.

A server gets a directory to keep its data in, says where it listens, and is stopped by its own pid.
They share nothing but the disk, and no knowledge of a workload lives here.
"""
