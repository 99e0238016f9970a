"""`simsd chat`: a conversation in the terminal, with the pair in this process or with a server."""

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from simsd.cli.options import (
    add_command,
    add_decode_options,
    add_model_options,
    decode_options,
    decode_params,
    load_loop,
)
from simsd.errors import RequestError, SimSDError
from simsd.messages.options import options_of
from simsd.messages.request import DecodeParams, Request

if TYPE_CHECKING:
    from simsd.loop.loop import Loop

EPILOG = """A line is a turn; an empty one is left out. /clear forgets the conversation, /exit (or Ctrl-D) ends it,
Ctrl-C ends an answer. Lines may come from a pipe, too.

examples:
  simsd chat
  simsd chat --system "Answer in one word." --method exact --stats
  simsd chat --url http://127.0.0.1:8000
  echo "What is the capital of France?" | simsd chat
"""
Messages = list[dict[str, str]]
Parts = AsyncGenerator[tuple[str, dict[str, Any] | None], None]
"""Pieces of an answer's text as they come; the last piece carries the answer's counters."""


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "chat",
        help="a conversation in the terminal",
        description="Talk to the pair in this process, or to a server with --url.",
        epilog=EPILOG,
    )
    parser.add_argument("--url", metavar="URL", help="a running server; without it, the models are loaded here")
    parser.add_argument("--api-key", metavar="KEY", help="for a server that asks for one")
    parser.add_argument("--system", metavar="TEXT", help="the system message")
    parser.add_argument("--stats", action="store_true", help="a line of counters after each answer")
    add_decode_options(parser)
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    options = decode_options(args)
    params = decode_params(args)
    talker: Local | Remote
    if args.url is None:
        talker = Local(load_loop(args, needs_draft=params.needs_draft), params)
    else:
        talker = Remote(args.url, args.api_key, options)
    messages: Messages = [{"role": "system", "content": args.system}] if args.system else []
    opening = len(messages)
    for line in _lines():
        if line == "/exit":
            break
        if line == "/clear":
            del messages[opening:]
            continue
        messages.append({"role": "user", "content": line})
        try:
            messages.append({"role": "assistant", "content": asyncio.run(_answer(talker, messages, args.stats))})
        except KeyboardInterrupt:
            messages.pop()
            print()
        except RequestError as error:  # only this turn is refused; the conversation goes on without it
            messages.pop()
            print(f"simsd chat: {error}", file=sys.stderr)
    return 0


def _lines() -> Any:
    """Yield the lines of standard input, a terminal or a pipe; they are stripped, and empty ones are left out."""
    prompt = ""
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 (gives input() a history and line editing)
        prompt = "> "
    while True:
        try:
            line = input(prompt).strip()
        except EOFError:
            return
        if line:
            yield line


async def _answer(talker: "Local | Remote", messages: Messages, stats: bool) -> str:
    text = ""
    async with contextlib.aclosing(talker.answer(messages)) as parts:
        async for part, counters in parts:
            print(part, end="", flush=True)
            text += part
            if counters is not None:
                print(flush=True)
                if stats:
                    print(_line_of(counters), file=sys.stderr, flush=True)
    return text


def _line_of(stats: dict[str, Any]) -> str:
    share = f"{stats['accepted'] / stats['drafted']:.2f}" if stats["drafted"] else "-"
    seconds = stats["decode_s"]
    speed = f"{stats['completion_tokens'] / seconds:.0f} tokens/s, " if seconds else ""
    return (
        f"[{stats['completion_tokens']} tokens, {speed}{stats['rounds']} rounds, acceptance {share}, forwards: "
        f"{stats['target_forwards']} target, {stats['draft_forwards']} draft]"
    )


class Local:
    """The pair in this process."""

    def __init__(self, loop: "Loop", params: DecodeParams) -> None:
        self._loop, self._params = loop, params

    async def answer(self, messages: Messages) -> Parts:
        """Answer the conversation; raises `RequestError` where it does not fit."""
        request = Request("chat", self._loop.tokenizer.encode_messages(messages), self._params)
        rounds = asyncio.create_task(self._loop.run())
        try:
            async with contextlib.aclosing(self._loop.generate(request)) as outputs:
                async for output in outputs:
                    yield output.text, output.stats.to_dict() if output.stats else None
            await asyncio.sleep(0)  # lets the loop run the round that gives the pages back
        finally:
            rounds.cancel()


class Remote:
    """A server, asked for streamed chat completions."""

    def __init__(self, url: str, api_key: str | None, options: dict[str, Any]) -> None:
        self._url = f"{url.rstrip('/')}/v1/chat/completions"
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        if "logit_bias" in options:
            options = options | {"logit_bias": {str(token): bias for token, bias in options["logit_bias"]}}
        beside = {name for name, option in options_of(DecodeParams).items() if option.place == "body"}
        self._body = {name: value for name, value in options.items() if name in beside}
        extension = {name: value for name, value in options.items() if name not in beside}
        self._body |= {"simsd": extension} if extension else {}

    async def answer(self, messages: Messages) -> Parts:
        """Answer the conversation; raises `RequestError` where the server refuses it, `SimSDError` where it fails."""
        import httpx

        body = self._body | {"messages": messages, "stream": True, "stream_options": {"include_usage": True}}
        try:
            async with (
                httpx.AsyncClient(timeout=None) as client,
                client.stream("POST", self._url, json=body, headers=self._headers) as response,
            ):
                if response.status_code != 200:
                    await response.aread()
                    raise _refusal(response.status_code, response.text)
                async for line in response.aiter_lines():
                    if not line.startswith("data: ") or line == "data: [DONE]":
                        continue
                    event = json.loads(line.removeprefix("data: "))
                    if "error" in event:
                        raise SimSDError(event["error"]["message"])
                    text = "".join(choice["delta"].get("content") or "" for choice in event["choices"])
                    done = event.get("usage") is not None
                    yield text, event["simsd"] if done else None
        except httpx.HTTPError as error:
            raise SimSDError(f"{self._url}: {error or type(error).__name__}") from error


def _refusal(status: int, body: str) -> SimSDError:
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = f"status {status}"
    return RequestError(message) if status == 400 else SimSDError(f"{message} (status {status})")
