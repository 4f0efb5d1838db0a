"""Commands that start SGLang as a server."""

from compatcheck.frameworks.keys import KeyTable, Names
from compatcheck.frameworks.launch.server import Server

NAMES = Names(__file__)
_SERVER = Server("sglang", KeyTable(__file__), NAMES, frozenset({"sglang serve", "sglang.launch_server"}))
TABLE, recognise, read, read_call = _SERVER.table, _SERVER.recognise, _SERVER.read, _SERVER.read_call
