"""openai-agents: a run with a function, over the Responses and over chat completions; streamed and whole."""

import asyncio
import os

from agents import Agent, ModelSettings, Runner, function_tool, set_tracing_disabled
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from agents.models.openai_responses import OpenAIResponsesModel
from openai import AsyncOpenAI
from service import check, done

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=os.environ["WORKER_URL"] + "/v1", api_key="none")


@function_tool
def current_minute() -> str:
    """The current minute of the clock."""
    return "forty-two"


async def main():
    for name, kind in (("responses", OpenAIResponsesModel), ("chat", OpenAIChatCompletionsModel)):
        model = kind(model="haiku", openai_client=client)
        settings = ModelSettings(temperature=0, max_tokens=60)
        poet = Agent(name="poet", model=model, model_settings=settings)
        r = await Runner.run(poet, "Write a haiku about rain")
        check("agents, %s: an answer" % name, len(r.final_output.splitlines()) == 3, r.final_output)
        clock = Agent(name="clock", model=model, model_settings=settings, tools=[current_minute])
        asked = "Write a haiku about rivers that includes the current minute"
        r = await Runner.run(clock, asked)
        check("agents, %s: a function is called" % name, "forty-two" in r.final_output, r.final_output)
        s = Runner.run_streamed(clock, asked)
        kinds = [e.type async for e in s.stream_events()]
        check("agents, %s: streamed" % name, s.final_output == r.final_output, (kinds, s.final_output))


asyncio.run(main())
done()
