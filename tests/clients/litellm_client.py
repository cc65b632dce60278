"""litellm's routes to OpenAI's, Anthropic's and Ollama's interfaces."""

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is asked of other hosts

import litellm  # noqa: E402
from service import check, done  # noqa: E402

URL = os.environ["WORKER_URL"]
RAIN = [{"role": "user", "content": "Write a haiku about rain"}]
POEM = [{"role": "user", "content": "Write a haiku about rivers that includes the current minute"}]
TOOL = {"type": "function", "function": {"name": "current_minute", "description": "The current minute of the clock."}}
ROUTES = {
    "openai/haiku": {"api_base": URL + "/v1"},
    "anthropic/haiku": {"api_base": URL},
    "ollama_chat/haiku": {"api_base": URL},
    "ollama/haiku": {"api_base": URL},
}

for model, more in ROUTES.items():
    asked = dict(more, model=model, api_key="none", temperature=0, max_tokens=60)
    a = litellm.completion(messages=RAIN, **asked)
    text = a.choices[0].message.content
    check("litellm, %s: an answer" % model, len(text.splitlines()) >= 3 and a.usage.total_tokens > 0, a)
    s = "".join(c.choices[0].delta.content or "" for c in litellm.completion(messages=RAIN, stream=True, **asked))
    check("litellm, %s: streamed" % model, s == text, s)
    if model == "ollama/haiku":  # this route writes functions into the prompt itself
        continue
    b = litellm.completion(messages=POEM, tools=[dict(TOOL)], **asked).choices[0].message
    check("litellm, %s: a call" % model, b.tool_calls and b.tool_calls[0].function.name == "current_minute", b)
a = litellm.responses(model="openai/haiku", api_base=URL + "/v1", api_key="none", input="Write a haiku about rain")
check("litellm, responses", a.output[0].content[0].text, a)
done()
