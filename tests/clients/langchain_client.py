"""langchain's models of three interfaces: answers, streams, functions, forms."""

import os

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from service import check, done

URL = os.environ["WORKER_URL"]
POEM = "Write a haiku about rivers that includes the current minute"


@tool
def current_minute() -> str:
    """The current minute of the clock."""
    return "forty-two"


MODELS = {
    "openai": ChatOpenAI(model="haiku", base_url=URL + "/v1", api_key="none", temperature=0, max_tokens=60),
    "openai responses": ChatOpenAI(
        model="haiku", base_url=URL + "/v1", api_key="none", temperature=0, max_tokens=60, use_responses_api=True
    ),
    "anthropic": ChatAnthropic(model="haiku", base_url=URL, api_key="none", temperature=0, max_tokens=60),
    "ollama": ChatOllama(model="haiku", base_url=URL, temperature=0, num_predict=60),
}

for name, model in MODELS.items():
    a = model.invoke("Write a haiku about rain")
    check("langchain, %s: an answer" % name, len(a.text.splitlines()) == 3, a)
    check("langchain, %s: usage" % name, a.usage_metadata and a.usage_metadata["total_tokens"] > 0, a)
    s = "".join(chunk.text for chunk in model.stream("Write a haiku about rain"))
    check("langchain, %s: streamed" % name, s == a.text, s)
    bound = model.bind_tools([current_minute])
    said = [HumanMessage(POEM), bound.invoke(POEM)]
    calls = said[1].tool_calls
    check("langchain, %s: a call" % name, [c["name"] for c in calls] == ["current_minute"], said)
    said += [ToolMessage("forty-two", tool_call_id=c["id"]) for c in calls]
    b = bound.invoke(said)
    check("langchain, %s: ... and its result" % name, "forty-two" in b.text, b)
done()
