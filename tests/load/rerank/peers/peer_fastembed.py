"""fastembed in an environment of its own: reads `{"query", "documents"}` line by line, answers each with its seconds."""

import json
import sys
import time

from fastembed.rerank.cross_encoder import TextCrossEncoder

model = TextCrossEncoder("Xenova/ms-marco-MiniLM-L-12-v2", specific_model_path=sys.argv[1], local_files_only=True)
list(model.rerank("warm", ["up"] * 4))
print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    started = time.perf_counter()
    list(model.rerank(asked["query"], asked["documents"]))
    print(json.dumps(time.perf_counter() - started), flush=True)
