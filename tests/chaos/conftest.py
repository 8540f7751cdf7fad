"""Clients of the official SDK against clusters that fail."""

from tests.support.brisk_sdk import use_brisk_sdk

use_brisk_sdk()
