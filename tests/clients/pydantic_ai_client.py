"""pydantic-ai: an agent with a function, over chat completions, the Responses, and Anthropic's messages."""

import os

from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from service import check, done

URL = os.environ["WORKER_URL"]
openai = OpenAIProvider(base_url=URL + "/v1", api_key="none")
MODELS = {
    "chat": OpenAIChatModel("haiku", provider=openai),
    "responses": OpenAIResponsesModel("haiku", provider=openai),
    "anthropic": AnthropicModel("haiku", provider=AnthropicProvider(base_url=URL, api_key="none")),
}

for name, model in MODELS.items():
    agent = Agent(model, model_settings={"temperature": 0, "max_tokens": 60})

    @agent.tool_plain
    def current_minute() -> str:
        """The current minute of the clock."""
        return "forty-two"

    r = agent.run_sync("Write a haiku about rivers that includes the current minute")
    check("pydantic-ai, %s" % name, "forty-two" in r.output, r.output)
done()
