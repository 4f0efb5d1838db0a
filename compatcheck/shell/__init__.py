"""Launch scripts: what a bash script would run, read without running anything."""

from compatcheck.shell.script import Script, read_script

__all__ = ["Script", "read_script"]
