"""Commands that start vLLM as a server."""

from compatcheck.frameworks.keys import KeyTable
from compatcheck.frameworks.launch.server import Server

_SERVER = Server("vllm", KeyTable(__file__), frozenset({"vllm serve", "vllm.entrypoints.openai.api_server"}))
TABLE, recognise, read = _SERVER.table, _SERVER.recognise, _SERVER.read
