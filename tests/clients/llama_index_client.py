"""llama-index: an OpenAI-like model, whole and streamed, with a function."""

import os

from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from service import check, done

model = OpenAILike(
    model="haiku",
    api_base=os.environ["WORKER_URL"] + "/v1",
    api_key="none",
    is_chat_model=True,
    is_function_calling_model=True,
    temperature=0,
    max_tokens=60,
)


def current_minute() -> str:
    """The current minute of the clock."""
    return "forty-two"


a = model.complete("Write a haiku about rain")
check("llama-index: an answer", len(a.text.splitlines()) == 3, a)
s = list(model.stream_complete("Write a haiku about rain"))[-1]
check("llama-index: streamed", s.text == a.text, s)
tool = FunctionTool.from_defaults(fn=current_minute)
b = model.predict_and_call([tool], "Write a haiku about rivers that includes the current minute")
check("llama-index: a function", "forty-two" in str(b), b)
done()
