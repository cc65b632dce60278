"""instructor: answers as pydantic models, by functions and by schemas."""

import os

import instructor
import openai
import pydantic
from service import check, done


class Pet(pydantic.BaseModel, extra="forbid"):
    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=30)


client = openai.OpenAI(base_url=os.environ["WORKER_URL"] + "/v1", api_key="none")
for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
    asked = {"model": "haiku", "messages": [{"role": "user", "content": "A pet"}], "max_tokens": 400}
    pet = instructor.from_openai(client, mode=mode).chat.completions.create(response_model=Pet, temperature=0, **asked)
    check("instructor, %s" % mode.name, isinstance(pet, Pet) and 0 <= pet.age <= 30, pet)
done()
