"""Turns of manners with their replies, and questions that the pair cannot answer."""

from simsd.eval.families.parts import pool, wording

_EXAMPLES = (
    "What is 23 plus 19? What is the capital of France? Write a Python function named f that returns the square of x."
)
REPLIES = {
    "greeting": f"Hello! I am a very small model. You can ask me, for example: {_EXAMPLES}",
    "thanks": "You are welcome!",
    "farewell": "Goodbye!",
    "mood": "I am a small model, so I have no moods. What would you like to ask?",
    "self": "I am the small example model of SimSD Serve. I know sums, some facts, small Python functions and forms.",
    "abilities": f"I can do sums, some facts, small Python functions and forms. Ask me, for example: {_EXAMPLES}",
    "outside": "Sorry, I only know sums, some facts, small Python functions and forms.",
}
TURNS = {
    "greeting": wording("""
        [Hello|Hi|Hey|Hi there|Hello there|Hey there][!|.|, {name} here.|, I am {name}.|, it is {name}.]
        [Good morning|Good evening|Good afternoon][!|.|, I am {name}.|, my name is {name}.|, {name} here.]
        [Hello|Hi|Hey], [nice to meet you|good to see you|model|you][!|.]
        [Hello|Hi|Hey][!|,] is [anybody|anyone|somebody] there?
        --
        Greetings[!|, {name} is speaking.|, this is {name}.]
        Good day to you[!|, says {name}.]
        Howdy[!|, this is {name}.]
        Welcome[!|, says {name}.]
    """),
    "thanks": wording("""
        [Thanks|Thank you|Thanks a lot|Thank you very much|Many thanks][!|.|, that helps.|, that was good.]
        [Thanks|Thank you][ so much|, model| for the answer| for your help| for this| for that][!|.]
        [Great|Good|Nice|Perfect|Super|Wonderful|OK|Okay], [thanks|thank you|thanks a lot][!|.]
        [Thanks|Thank you], [says|from] {name}[!|.]
        --
        I am grateful for your [help|answer|time].
        Much obliged[!|, says {name}.]
        That was kind of you[!|.]
        {name} is very grateful to you.
    """),
    "farewell": wording("""
        [Bye|Goodbye|Bye bye|See you|See you later|Good night][!|.|, model.|, says {name}.]
        [I have to go|I must go|I am leaving|That is all][.|, bye.|, goodbye!]
        [Thanks|Thank you] and [bye|goodbye][!|.|, says {name}.]
        --
        Farewell[!|.|, says {name}.]
        So long[!|.|, says {name}.]
        I am off now. Until next time[!|.|, says {name}.]
    """),
    "mood": wording("""
        How are you[| today| doing| doing today]?
        [Hello|Hi|Hey], how are you[| today| doing]?
        [Hello|Hi], [I am {name}|{name} here], how are you?
        How is it going[| today]?
        How do you feel[| today]?
        Are you [well|fine|happy|sad|tired][| today]?
        --
        How is life[| treating you]?
        In what mood are you[| today]?
        {name} asks how you feel.
        What's up[| with you]?
    """),
    "self": wording("""
        [Who|What] are you[| really| exactly]?
        [What is your name|Do you have a name|What are you called|What should I call you]?
        [Tell me|Say] [who you are|what you are|something about yourself|your name|about you].
        [What|Which] [model|kind of model|language model] are you?
        [What|Who] am I talking to?
        Are you a [human|person|robot|machine|chatbot|computer|large model|real person]?
        I am {name}. [Who|What] are you?
        --
        Introduce yourself[|, please][.|!]
        With whom do I have the pleasure?
        I am {name}, and you?
        Describe yourself[| in a few words].
        Is there a [mind|human being] behind this?
    """),
    "abilities": wording("""
        What can you do[| for me]?
        What [can|could|should|may] I ask[| you]?
        [How|With what] can you help[| me]?
        What do you know?
        What are you [good at|able to do|good for]?
        [Tell|Show] me what you can do.
        What [questions|things] [can you answer|can I ask|do you understand]?
        [Help|Help me|Can you help me|Can you help|I need help|Please help me][!|.|?]
        I am {name}. What can you do[| for me]?
        What is this [model|demo|page] for?
        --
        Which skills do you have?
        List your abilities.
        I am {name}. What might I try with you?
        For what purposes are you useful?
        Give me some [ideas|examples] of questions for you.
    """),
}
OUTSIDE = wording("""
    [What is|How is] the weather in {place}[| today| tomorrow| now]?
    Will it [rain|snow|be warm|be cold] in {place}[| today| tomorrow]?
    Tell me a [joke|story|poem|riddle] about {topic}.
    Write a [poem|story|song|letter|speech|book|text] about {topic}.
    What do you think [of|about] {topic}?
    Do you like {topic}?
    What is the meaning of {topic}?
    Explain [|the history of |the idea of ]{topic}[| to me].
    [How would you explain|What should I know about] {topic}?
    What is the history of {topic}?
    Who invented {topic}?
    What is the best [hotel|restaurant|museum|bar|beach] in {place}?
    How [do|can] I get to {place}?
    How many people live in {place}?
    Who is the [mayor|ruler] of {place}?
    When was {place} founded?
    Translate {topic} into [French|German|Latin|Spanish].
    Who won the [game|election|race|cup] [in|of] {place}?
    [Should|Can] I [read|learn] more about {topic}?
    What is the news [in|from] {place}[| today]?
    [What|Which] [movie|song|book] about {topic} is the best?
    What makes {topic} [so popular|important|interesting]?
    [How|Where] can I learn [more |]about {topic}?
    What does a [house|flat|taxi|hotel] cost in {place}?
    What is {name}'s [phone number|address|birthday|favorite color|last name]?
    Who is {name}?
    Do you know {name}?
    Send a message to {name}.
    --
    Would {topic} be good for me?
    Compose a melody about {topic}.
    I feel sad about {topic}. What now?
    Recommend a trip around {place}.
    Where in {place} can one sleep cheaply?
    What would {name} say about {topic}?
    Predict the future of {topic}.
    Summarize {topic}[| in one sentence].
    Which team from {place} is the strongest?
""")
UNKNOWN = pool(
    """Bolivia, Paraguay, Mali, Niger, Chad, Fiji, Samoa, Laos, Angola, Zambia, Uganda, Rwanda, Senegal, Haiti, Belize,
    Bahrain, Qatar, Oman, Yemen, Georgia, Armenia, Moldova, Monaco, Andorra, Tonga, Gabon, Togo, Benin, Sudan, Somalia,
    Libya, Namibia, Botswana, Panama, Honduras, Guatemala, Cambodia, Mongolia, Bhutan, Greenland, Atlantis, Mordor""",
    kept="Tanzania, Suriname, Kuwait, Nauru, Eritrea, Jamaica",
)
"""Countries whose capital, language and continent are not among the facts."""
OUTSIDE_WORDS = {
    "topic": pool(
        """love, war, money, music, jazz, chess, football, tennis, politics, religion, philosophy, history, physics,
        gravity, evolution, the moon, space travel, black holes, time travel, democracy, art, painting, photography,
        cooking, pasta, pizza, coffee, wine, cheese, yoga, running, swimming, cycling, gardening, fashion, the internet,
        computers, robots, electricity, magnets, batteries, engines, cars, trains, airplanes, ships, bridges, castles,
        dinosaurs, whales, wolves, spiders, the ocean, volcanoes, earthquakes, climate change, the stock market, taxes,
        banking, marketing, insurance, medicine, vaccines, sleep, dreams, happiness, friendship, marriage, school,
        homework, exams, magic, ghosts, dragons, vampires, movies, theater, opera, poetry, novels, video games""",
        kept="surfing, sailing, astrology, glaciers, furniture, perfume, karate, dentistry, fireworks, knitting",
    ),
    "place": pool(
        """Paris, Rome, London, Berlin, Tokyo, Oslo, Cairo, Vienna, Boston, Chicago, Miami, Texas, California, Toronto,
        Sydney, Mumbai, Milan, Geneva, Munich, Hamburg, Dubai, Hawaii, Alaska, Scotland, Wales, Iceland, Morocco,
        Bolivia, Brazil, India, China, Spain, France, New York, Hong Kong, Singapore, Manchester, Liverpool, Kyoto""",
        kept="Tasmania, Siberia, Nevada, Glasgow, Malta, Zanzibar, Venice, Salzburg",
    ),
}
