"""What the records family fills in: fields with several keys each, and sentences that mention them."""

from dataclasses import dataclass

from simsd.eval.families.parts import Wording, wording

KEYS = {
    "name": wording("name\n name\n person\n who\n--\n full_name"),
    "other": wording("guest\n partner\n friend\n--\n companion"),
    "age": wording("age\n age\n years\n--\n age_in_years"),
    "pet_age": wording("age\n age\n years\n--\n age_in_years"),
    "city": wording("city\n city\n town\n place\n--\n location"),
    "goal": wording("to\n goal\n destination\n--\n arrival"),
    "start": wording("from\n start\n origin\n--\n departure"),
    "job": wording("job\n work\n profession\n--\n occupation"),
    "count": wording("count\n number\n amount\n quantity\n--\n how_many"),
    "item": wording("item\n thing\n object\n--\n product"),
    "color": wording("color\n color\n shade\n--\n paint"),
    "day": wording("day\n day\n weekday\n date\n--\n which_day"),
    "hour": wording("hour\n time\n--\n o_clock"),
    "price": wording("price\n cost\n dollars\n--\n fee"),
    "animal": wording("animal\n pet\n kind\n--\n creature"),
}
NUMBERS = {"age": (2, 99), "pet_age": (2, 19), "count": (2, 99), "hour": (1, 12), "price": (2, 99)}


@dataclass(frozen=True)
class Domain:
    """Sentences of one kind, and the tool that does what the requests ask for. The fields are those of KEYS."""

    sentences: Wording
    tool: Wording
    requests: Wording


DOMAINS = (
    Domain(
        wording("""
            {name} is {age} years old and lives in {city}.
            {name} lives in {city} and is {age} years old.
            {name} is a {job} in {city}.
            {name}, who is {age}, works as a {job}.
            {name} works as a {job} in {city} and is {age} years old.
            My name is {name}. I am {age} years old.
            I am {name}, I live in {city}, and I am a {job}.
            {name} is {age} and has a job as a {job}.
            The {job} {name} lives in {city}.
            {name} comes from {city} and is {age} years old.
            --
            In {city} there lives a {job} of {age} years named {name}.
            Meet {name}, aged {age}, from {city}.
            Our new {job} is {name}, who just turned {age}.
            People in {city} know {name} well, who has been a {job} for long.
        """),
        wording("add_person\n save_person\n add_user\n--\n register_person"),
        wording("""
            Add {name}, who is {age} years old and lives in {city}.
            Add a person named {name} from {city}.
            Save {name}, a {job} from {city}.
            Please save that {name} is {age} years old.
            Add the {job} {name}, who is {age}.
            --
            We have a new person here, {name} from {city}, aged {age}.
            Put {name} on the list, a {job} of {age} years.
        """),
    ),
    Domain(
        wording("""
            {name} orders {count} {item}.
            {name} buys {count} {color} {item}.
            {name} wants {count} {item} in {color}.
            {name} bought {count} {item} on {day}.
            I am {name} and I need {count} {color} {item}.
            {count} {item} go to {name} in {city}.
            Send {count} {color} {item} to {city}.
            On {day}, {name} ordered {count} {color} {item}.
            {name} from {city} asks for {count} {item}.
            --
            There is an order of {count} {item}, all {color}, for {name}.
            A parcel with {count} {color} {item} leaves for {city} on {day}.
            Would you kindly deliver {count} {item} to {name}?
        """),
        wording("order_items\n place_order\n buy_items\n--\n make_purchase"),
        wording("""
            Order {count} {item} for {name}.
            Order {count} {color} {item}.
            Buy {count} {item} and send them to {city}.
            Please get {count} {color} {item} for {name}.
            I would like to buy {count} {item} in {color}.
            Can you order {count} {item}?
            --
            We are out of {item}, so have {count} of them sent to {city}.
            {name} could use {count} {color} {item}.
        """),
    ),
    Domain(
        wording("""
            {name} travels from {start} to {goal} on {day}.
            {name} flies to {goal} on {day}.
            On {day}, {name} takes a train from {start} to {goal}.
            The train from {start} to {goal} leaves at {hour} o'clock.
            The bus to {goal} leaves on {day} at {hour}.
            A ticket from {start} to {goal} costs {price} dollars.
            {name} goes to {goal} for {price} dollars.
            I am going from {start} to {goal} on {day}.
            --
            {name} leaves {start} on {day} and heads for {goal}.
            For {price} dollars, {name} gets from {start} to {goal}.
            Departure to {goal} is on {day}, {hour} o'clock sharp.
        """),
        wording("book_trip\n book_ticket\n book_train\n--\n reserve_seat"),
        wording("""
            Book a trip from {start} to {goal}.
            Book a ticket to {goal} on {day}.
            Get me a train from {start} to {goal} on {day}.
            I want to go from {start} to {goal} on {day}.
            Please book a ticket to {goal} for {name}.
            Can you book a train to {goal} at {hour} o'clock?
            --
            Get {name} from {start} to {goal}, please.
            I must be in {goal} on {day}, and I live in {start}.
        """),
    ),
    Domain(
        wording("""
            {name} meets {other} on {day}.
            {name} meets {other} at {hour} o'clock in {city}.
            {name} and {other} have a meeting on {day} at {hour}.
            The meeting of {name} and {other} is on {day}.
            On {day}, {name} sees {other} at {hour} o'clock.
            The party is on {day} in {city} at {hour} o'clock.
            {name} calls {other} on {day} at {hour}.
            --
            It is {day} when {name} will talk to {other}.
            {name} has invited {other} to {city}, at {hour} o'clock.
            Be in {city} on {day}, {hour} o'clock, says {name}.
        """),
        wording("add_meeting\n plan_meeting\n set_meeting\n--\n create_event"),
        wording("""
            Plan a meeting with {name} on {day}.
            Plan a meeting with {name} on {day} at {hour} o'clock.
            Add a meeting with {name} in {city} on {day}.
            Set up a meeting with {name} at {hour}.
            I want to meet {name} in {city} at {hour} o'clock.
            --
            Let {name} know that we talk on {day} at {hour} o'clock.
            Arrange that I see {name} in {city} on {day}.
        """),
    ),
    Domain(
        wording("""
            The {item} cost {price} dollars in {city}.
            {name} sells {color} {item} for {price} dollars.
            {name} paid {price} dollars for the {item}.
            You can buy {item} in {city} for {price} dollars.
            {count} {item} cost {price} dollars.
            In {city}, {count} {item} are sold for {price} dollars.
            The {color} {item} of {name} cost {price} dollars.
            --
            For {price} dollars you get {count} {color} {item}.
            {name} asks {price} dollars for {item} at the market of {city}.
            A shop in {city} offers {color} {item} at {price} dollars.
        """),
        wording("set_price\n add_price\n save_price\n--\n change_price"),
        wording("""
            Set the price of {item} to {price} dollars.
            Save that {item} cost {price} dollars.
            Save that {item} cost {price} dollars in {city}.
            Please set the price of {color} {item} to {price}.
            --
            From now on {item} are sold at {price} dollars.
            We want {price} dollars for {item} in {city}.
        """),
    ),
    Domain(
        wording("""
            {name} has a {animal} that is {pet_age} years old.
            The {animal} of {name} is {pet_age} years old.
            {name} bought a {color} {animal} in {city}.
            {name} has a {color} {animal}.
            {name} keeps {count} {color} birds in {city}.
            {name} got a {animal} in {city}.
            My {animal} is called {name} and is {pet_age} years old.
            --
            A {color} {animal} called {name} was found in {city}.
            At the age of {pet_age}, {name} the {animal} moved to {city}.
            Look at that {color} {animal}! It belongs to {name}.
        """),
        wording("add_pet\n save_pet\n new_pet\n--\n register_pet"),
        wording("""
            Add a {animal} named {name}.
            Add my {animal} {name}, who is {pet_age} years old.
            Save the {color} {animal} of {name}.
            Please add the {color} {animal} from {city}.
            --
            I have a new {animal}, {name}, aged {pet_age}.
            There is one more {animal} in {city}, a {color} one.
        """),
    ),
)
