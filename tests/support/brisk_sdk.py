"""The Python SDK without its pauses.

A sender or receiver that opens looks every 50 ms whether it is ready, and one that closes waits for
its keep-alive task, which sleeps for a second at a time; the tests open and close thousands. Here
both sleep for a fraction of that. They run the SDK's own code, and nothing else of the SDK is
changed: what it sends, and its retries, are as they were. The programs of `test_sdks.py`, in
processes of their own, have the SDK as it is.
"""

from __future__ import annotations

import asyncio
import time
from types import FunctionType, ModuleType
from typing import Final

from azure.servicebus import ServiceBusReceiver, ServiceBusSender
from azure.servicebus._pyamqp.aio._client_async import AMQPClientAsync
from azure.servicebus._pyamqp.client import AMQPClient
from azure.servicebus.aio import ServiceBusReceiver as AioReceiver
from azure.servicebus.aio import ServiceBusSender as AioSender

OPENING_S: Final = 0.005
KEEP_ALIVE_S: Final = 0.05


def use_brisk_sdk() -> None:
    """From now on, in this process."""
    _replace(ServiceBusSender, "_open", _brisk(time, OPENING_S))
    _replace(ServiceBusReceiver, "_open", _brisk(time, OPENING_S))
    _replace(AioSender, "_open", _brisk(asyncio, OPENING_S))
    _replace(AioReceiver, "_open", _brisk(asyncio, OPENING_S))
    _replace(AMQPClient, "_keep_alive", _brisk(time, KEEP_ALIVE_S))
    _replace(AMQPClientAsync, "_keep_alive_async", _brisk(asyncio, KEEP_ALIVE_S))


def _brisk(module: ModuleType, pause_s: float) -> ModuleType:
    """The module with a `sleep` that never lasts longer."""
    sleep = module.sleep
    made = ModuleType(module.__name__)
    made.__dict__.update(vars(module), sleep=lambda s: sleep(min(s, pause_s)))
    return made


def _replace(owner: type[object], name: str, module: ModuleType) -> None:
    """The same code, with another module under the name of the one that it uses."""
    old = getattr(owner, name)
    assert isinstance(old, FunctionType)
    assert module.__name__ in old.__code__.co_names, f"{name} of the SDK is another function now"
    names = {**old.__globals__, module.__name__: module}
    made = FunctionType(old.__code__, names, name, old.__defaults__, old.__closure__)
    made.__kwdefaults__ = old.__kwdefaults__
    setattr(owner, name, made)
