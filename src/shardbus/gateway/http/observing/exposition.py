"""Metrics as values, and in the text format of Prometheus (version 0.0.4)."""

from __future__ import annotations

from typing import Final, final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

COUNTER: Final = "counter"
GAUGE: Final = "gauge"


@final
class Sample:
    def __init__(self, value: float, labels: dict[str, str]) -> None:
        self.value = value
        self.labels = labels


@final
class Family:
    """One metric: all its samples, which differ in their labels."""

    def __init__(self, name: str, kind: str, help_text: str) -> None:
        self.name = name
        self.kind = kind
        self.help_text = help_text
        self.samples: list[Sample] = []

    def add(self, value: float, **labels: str) -> None:
        self.samples.append(Sample(value, labels))

    def to_text(self) -> str:
        lines = [f"# HELP {self.name} {_help(self.help_text)}", f"# TYPE {self.name} {self.kind}"]
        lines += [f"{self.name}{_labels(sample)} {sample.value}" for sample in self.samples]
        return "\n".join(lines) + "\n"


def _labels(sample: Sample) -> str:
    if not sample.labels:
        return ""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in sample.labels.items())
    return "{" + ",".join(pairs) + "}"


def _escaped(text: str) -> str:
    return _help(text).replace('"', '\\"')


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
