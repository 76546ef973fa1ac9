"""sentence-transformers with its ONNX backend in an environment of its own; the protocol of the others."""

import json
import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"

from sentence_transformers import CrossEncoder

model = CrossEncoder(
    sys.argv[1], backend="onnx", max_length=512, model_kwargs={"file_name": "onnx/model.onnx", "provider": "CPUExecutionProvider"}
)
model.predict([("warm", "up")] * 4)
print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    started = time.perf_counter()
    model.predict([(asked["query"], document) for document in asked["documents"]])
    print(json.dumps(time.perf_counter() - started), flush=True)
