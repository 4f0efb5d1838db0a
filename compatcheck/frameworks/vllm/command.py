"""Commands that start vLLM as a server."""

from compatcheck.frameworks.keys import KeyTable, Names
from compatcheck.frameworks.launch.server import CONVERSIONS, Server

_COMMANDS = frozenset({"vllm serve", "vllm.entrypoints.openai.api_server"})
NAMES = Names(__file__)
_SERVER = Server("vllm", KeyTable(__file__, conversions=CONVERSIONS), NAMES, _COMMANDS)
TABLE, recognise, read, read_call = _SERVER.table, _SERVER.recognise, _SERVER.read, _SERVER.read_call
