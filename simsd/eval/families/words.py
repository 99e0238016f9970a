"""Names, objects and places of the stories. Each pool keeps some of its words from training."""

from simsd.eval.families.parts import pool

MEN = pool("""
    Tom, Ben, Sam, Leo, Dan, Max, Ivan, Adam, Alan, Alex, Andre, Arthur, Bill, Bob, Boris, Brian, Bruno, Carl,
    Carlos, Chris, Colin, David, Dennis, Diego, Edgar, Emil, Eric, Felix, Finn, Frank, Fred, Gary, George, Greg,
    Hans, Harry, Henry, Hugo, Ian, Igor, Isaac, Jack, Jacob, Jake, James, Jim, Joe, John, Jonas, Josh, Karim, Ken,
    Kevin, Lars, Lee, Liam, Louis, Lucas, Luke, Marco, Mark, Martin, Matt, Mike, Milo, Nick, Noah, Oliver, Omar,
    Oscar, Otto, Owen, Pablo, Paul, Pedro, Peter, Phil, Ravi, Ray, Rob, Ron, Samir, Simon, Steve, Tim, Toby, Tony,
    Victor, Walter, Will, Yusuf
""")
WOMEN = pool("""
    Anna, Lucy, Mia, Emma, Nora, Ella, Ruth, Ada, Agnes, Alice, Amy, Anita, Ann, Aisha, Bella, Beth, Carla, Carol,
    Cathy, Clara, Daisy, Diana, Dora, Edith, Elena, Elsa, Emily, Erika, Eva, Fatima, Fiona, Flora, Gina, Grace,
    Greta, Hanna, Helen, Ida, Ines, Irene, Iris, Jane, Jenny, Jill, Julia, Kate, Kim, Lara, Laura, Lena, Lily,
    Linda, Lisa, Lola, Maria, Marta, Mary, Maya, Meg, Molly, Nadia, Nina, Olga, Olivia, Paula, Petra, Priya, Rita,
    Rosa, Rose, Sally, Sara, Sofia, Sonia, Sue, Tara, Tina, Uma, Vera, Wendy, Yara, Zoe
""")
ROLES = pool(
    """farmer, teacher, student, boy, girl, doctor, driver, nurse, painter, singer, man, woman, neighbor, baker, cook,
    writer, child, king, queen, tailor""",
    kept="gardener, pilot, dentist",
)
RELATIVES = {"he": pool("brother, father, uncle, son, cousin", kept="grandfather, nephew")} | {
    "she": pool("sister, mother, aunt, daughter, friend", kept="grandmother, niece")
}

FRUIT = pool("""
    apple, pear, plum, cherry, peach, banana, lemon, melon, orange, carrot, onion, potato, tomato, nut, egg, grape,
    fig, date, olive, pepper, radish, walnut, almond, berry, strawberry, mango, apricot, kiwi, lime, coconut,
    mushroom, chestnut, candy, sweet, pumpkin, turnip, cucumber, raspberry, cabbage, acorn
""")
DISHES = pool("""
    roll, bun, loaf, cake, pie, cookie, muffin, waffle, pancake, sandwich, sausage, pizza, chocolate, biscuit,
    donut, burger, taco, dumpling, pretzel, tart, bagel, cracker, lollipop, cupcake, brownie, meatball, omelet,
    burrito
""")
THINGS = pool("""
    book, coin, pen, card, shell, stamp, key, cup, ball, sticker, pencil, marble, button, bead, toy, doll, plate,
    bowl, spoon, fork, knife, glass, bottle, jar, mug, lamp, candle, clock, watch, ring, shirt, hat, sock, shoe,
    glove, scarf, belt, coat, dress, towel, pillow, blanket, basket, brush, comb, mirror, picture, poster, postcard,
    letter, envelope, notebook, magazine, newspaper, ticket, map, flag, badge, medal, kite, balloon, drum, flute,
    puzzle, brick, block, nail, screw, bolt, rope, chain, wheel, tire, battery, cable, phone, camera, chair, table,
    stool, desk, box, bag, umbrella, tent, rose, tulip, flower, leaf, seed, plant, tree, stone, pebble, feather,
    magnet, ribbon, paper clip, eraser, ruler, crayon, paintbrush, tennis ball, toy car, model plane, comic book,
    game card, photo, record, needle, thread, hammer, wrench, rake, bucket, pot, pan, tray, napkin, straw, token,
    whistle, bell, mask, wig, crown
""")
ANIMALS = pool(
    "cow, horse, sheep, goat, pig, duck, hen, goose, rabbit, fish, pony, hamster, parrot, turtle, donkey",
    kept="llama, turkey",
)
PLACES = pool(
    """in a box, in a bag, on a table, on a shelf, in the kitchen, in a drawer, in the garden, on the floor, in a room,
    in a shop, in a bowl, on a desk, in the cellar""",
    kept="in a crate, under the bed, in the attic, on the porch",
)
CONTAINERS = pool(
    "box, bag, jar, shelf, pack, tray, bucket, drawer, row, pile, bowl, room, table", kept="carton, tin, sack, cabinet"
)
COLORS = pool("red, blue, green, yellow, white, black, brown, pink", kept="purple, gray")
CITIES = pool(
    """Paris, Rome, London, Madrid, Berlin, Tokyo, Lima, Oslo, Cairo, Vienna, Athens, Prague, Dublin, Lisbon, Warsaw,
    Boston, Chicago, Miami, Denver, Dallas, Seattle, Toronto, Sydney, Mumbai, Milan, Turin, Lyon, Nice, Porto, Geneva,
    Zurich, Munich, Hamburg, Cologne, Bremen, Bergen, Malmo, Delhi, Seoul, Hanoi, Manila, Dubai, Tunis, Lagos, Dakar""",
    kept="Austin, Phoenix, Naples, Seville, Leipzig, Krakow, Osaka, Perth, Bogota, Tampa",
)
JOBS = pool(
    "teacher, doctor, farmer, painter, baker, driver, lawyer, nurse, cook, writer, singer, plumber, tailor, waiter",
    kept="dentist, pilot, gardener, butcher",
)
DAYS = pool("Monday, Tuesday, Wednesday, Thursday, Saturday", kept="Friday, Sunday")
