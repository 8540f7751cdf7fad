"""Clients of the official SDK against servers that are killed."""

from tests.support.brisk_sdk import use_brisk_sdk

use_brisk_sdk()
