"""infinity-emb's engine in an environment of its own; the protocol of the others."""

import asyncio
import json
import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["INFINITY_ANONYMOUS_USAGE_STATS"] = "0"

from infinity_emb import AsyncEngineArray, EngineArgs


async def main() -> None:
    """Serve lines until they end."""
    arguments = EngineArgs(model_name_or_path=sys.argv[1], engine="optimum", device="cpu", model_warmup=False)
    array = AsyncEngineArray.from_args([arguments])
    engine = array[0]
    async with engine:
        await engine.rerank(query="warm", docs=["up"] * 4)
        print(json.dumps("ready"), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            asked = json.loads(line)
            started = time.perf_counter()
            await engine.rerank(query=asked["query"], docs=asked["documents"])
            print(json.dumps(time.perf_counter() - started), flush=True)


asyncio.run(main())
