"""Reads a Dockerfile: what it does, stage by stage, and how its image is started."""

import json
import re


class Stage:
    """One FROM: base, name, instructions as (word, text), in order."""

    def __init__(self, base, name):
        self.base, self.name, self.instructions = base, name, []

    def all(self, word):
        return [text for instruction, text in self.instructions if instruction == word]

    def one(self, word):
        (text,) = self.all(word)
        return text

    def command(self, word):
        """ENTRYPOINT, CMD, or the command of HEALTHCHECK, as a list."""
        return json.loads(self.one(word)[self.one(word).index("[") :])

    def environment(self):
        return dict(pair.split("=", 1) for text in self.all("ENV") for pair in text.split())

    def packages(self):
        """What its apt-get installs."""
        said = re.search(r"apt-get install (.*?) &&", " ".join(self.all("RUN")))[1]
        return {word for word in said.split() if not word.startswith("-")}


def stages_of(path):
    """The stages of a Dockerfile."""
    with open(path, encoding="utf-8") as f:
        lines = [line for line in f.read().splitlines() if not line.lstrip().startswith("#")]
    stages = []
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        word, _, text = line.strip().partition(" ")
        if word == "FROM":
            base, _, name = text.partition(" AS ")
            stages.append(Stage(base, name))
        elif word and stages:
            stages[-1].instructions.append((word, re.sub(r"\s+", " ", text)))
    return stages
