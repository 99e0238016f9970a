"""How a prompt is typed: politely or not, with contractions, in lower case, without its last mark."""

from random import Random

from simsd.eval.families.parts import capitalised, wording
from simsd.eval.question import Split

OPENINGS = wording("""
    Please answer:
    Question:
    Hi!
    Hello.
    Quick question:
    I have a question.
    One question:
    --
    Here is one for you:
    Could you help me with this?
    Good day.
""")
CLOSINGS = wording("""
    Thanks!
    Thank you.
    Please answer.
    --
    Many thanks.
    I would like to know.
""")
ASKING = ("Tell", "Please", "Can", "Could", "Do you know", "Give", "Say")
"""Beginnings that ask already, so that no `Please answer:` goes before them."""
CONTRACTIONS = (("What is ", "What's "), ("Who is ", "Who's "), ("what is ", "what's "), ("do not ", "don't "))


def typed(rng: Random, split: Split, prompt: str, lower: bool = True) -> str:
    """Write a prompt as somebody might type it. More than half of them stay as they are.

    lower: whether lower case keeps the meaning.
    """
    chance = rng.random()
    if chance < 0.55:
        return prompt
    if chance < 0.65:
        opening = OPENINGS.draw(rng, split)
        return prompt if opening.endswith(":") and prompt.startswith(ASKING) else f"{opening} {prompt}"
    if chance < 0.71:
        return f"{prompt} {CLOSINGS.draw(rng, split)}"
    if chance < 0.80:
        for long, short in CONTRACTIONS:
            if long in prompt:
                return prompt.replace(long, short, 1)
        return prompt
    if chance < 0.87:
        return prompt.rstrip("?.! ")
    if not lower:
        return prompt
    prompt = prompt.lower()
    return prompt if chance < 0.93 else prompt.rstrip("?.! ")


def imperative(rng: Random, task: str) -> str:
    """Return a task, such as `name the capital of France`, as an order or as a polite question."""
    chance = rng.random()
    if chance < 0.6:
        return capitalised(task) + "."
    if chance < 0.8:
        return f"Please {task}."
    return f"{rng.choice(('Can', 'Could'))} you {task}?"
