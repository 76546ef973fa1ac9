"""Scores of pairs by torch and transformers. The user's own interpreter, which has them, runs this text; it knows nothing of this package.

    python -c TEXT FOLDER < job.json

The job says `cross_encoder`, `max_tokens`, `pooling`, `query_prefix`, `passage_prefix` and `pairs`. The last line of the output is
JSON: `scores`, and the `versions` of what gave them.
"""

import json
import sys
from importlib import import_module
from typing import Any


def main(folder: str, job: dict[str, Any]) -> None:
    """Print the scores of the job's pairs by the model in `folder`, which is never fetched and runs no code of its own."""
    torch, transformers = import_module("torch"), import_module("transformers")
    kind = transformers.AutoModelForSequenceClassification if job["cross_encoder"] else transformers.AutoModel
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = kind.from_pretrained(folder, local_files_only=True, torch_dtype=torch.float32).eval()

    def run(*texts: str) -> Any:
        with torch.no_grad():
            return model(**tokenizer(*texts, truncation=True, max_length=job["max_tokens"], return_tensors="pt"))

    def vector(text: str) -> Any:
        states = run(text).last_hidden_state[0]
        return torch.nn.functional.normalize(states[0] if job["pooling"] == "cls" else states.mean(0), dim=0)

    def score(query: str, passage: str) -> float:
        if job["cross_encoder"]:
            return float(run(query, passage).logits[0][0])
        return float(vector(job["query_prefix"] + query) @ vector(job["passage_prefix"] + passage))

    scores = [score(query, passage) for query, passage in job["pairs"]]
    print(json.dumps({"scores": scores, "versions": {each.__name__: each.__version__ for each in (torch, transformers)}}))  # noqa: T201 - the answer


if __name__ == "__main__":
    main(sys.argv[1], json.load(sys.stdin))
