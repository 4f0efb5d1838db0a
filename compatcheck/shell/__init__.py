"""The one reader of bash: what a script would run, read without running anything.

`read_script` takes the text of a script (launch script, ``RUN`` of a Dockerfile, entry point of an image) with what it starts
with, and gives its commands as `compatcheck.core.command.Command`, what it writes, and what is not known. `expand_text` replaces
the parameters of one text.
"""

from compatcheck.shell.expand import expand_text
from compatcheck.shell.scheduler import variables_of_header
from compatcheck.shell.script import Script, read_script

__all__ = ["Script", "expand_text", "read_script", "variables_of_header"]
