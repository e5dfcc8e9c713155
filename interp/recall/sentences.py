"""Unrelated sentences for the word-span exercise; each ends in a noun that no other ends in."""

from __future__ import annotations

SENTENCES = tuple(
    line
    for line in """
The carpenter left his best hammer beside the ladder
Nobody had expected so much snow in the valley
After the concert they shared a bowl of soup
A grey cat slept all afternoon on the piano
The museum keeps its oldest coins in a drawer
On the third day the wind tore the sail
She poured the cold tea into the sink
The children painted a yellow sun on the fence
Behind the bakery somebody had parked a tractor
The judge read the letter twice and folded the paper
In spring the river carries mud to the harbour
He could not open the gate without the key
A loud engine woke the whole village before breakfast
The gardener planted three rows of onion
Their grandmother kept buttons in a glass jar
It took two people to lift the mirror
The pilot waited an hour for better weather
She wrote the address on the back of an envelope
Every winter the pond turns into a field of ice
The waiter forgot to bring the pepper
A long crack ran across the ceiling
The librarian whispered and pointed at the clock
He found an old map inside the suitcase
The new bridge was painted the colour of rust
At noon the workers rested under an oak
The tailor measured the sleeve with a ribbon
Somebody had left a wet umbrella in the corridor
The dog refused to walk past the butcher
They measured the depth of the lake with a rope
The chemist labelled every bottle with a pencil
A thin line of smoke rose from the chimney
The actor could not remember the last verse
She bought a kilo of plums at the market
The train stopped for ten minutes inside the tunnel
His uncle repairs radios in a small workshop
The nurse changed the water in the vase
We heard an owl somewhere above the barn
The recipe calls for butter and a pinch of salt
A stranger asked the way to the cathedral
The goats climbed up to the highest meadow
He hid the present at the bottom of the wardrobe
The professor drew a perfect circle on the blackboard
They crossed the desert with one spare wheel
The baker dusted the warm loaf with flour
All night rain ran down the window
The captain wrote the position in his diary
A bee landed on the edge of the saucer
The tenant paid his rent with a cheque
Her brother plays the second violin in an orchestra
The fisherman mended the net with a needle
The teacher collected the homework in a basket
It is forbidden to swim beneath the waterfall
The plumber came late and forgot his wrench
A red kite hung for weeks in the chestnut
The mayor opened the library with a short speech
She keeps her winter boots in the cellar
The farmer counted the sheep and closed the stable
He learned to juggle with three lemons and an apple
The photograph shows a man beside a camel
Nobody noticed the small door behind the curtain
The sailors sang until they reached the island
A spoon fell noisily onto the tiles of the kitchen
The doctor asked him to breathe through the mask
Their tent stood at the edge of the forest
The clerk stamped the form and returned the passport
He drank the rest of the milk from the carton
The squirrel carried a nut along the branch
They celebrated the harvest with bread and honey
The mechanic lay for an hour under the lorry
She could see her breath in the cold chapel
The author lost a whole chapter on the ferry
A broken chair blocked the narrow staircase
The guests admired the roses and the fountain
He sharpened the knife on a wet stone
The parcel was tied up with green string
The goalkeeper threw his gloves into the mud
A single candle stood on the shelf
The astronomer spent her holiday repairing a telescope
The postman leaned his bicycle against the wall
They dried the herbs above the stove
The boy kept a live beetle in a matchbox
The choir rehearsed on Tuesdays in the gymnasium
The hotel had a marble floor and no elevator
She traced the route with her finger on the globe
The miller sold his donkey and bought a cart
The shop on the corner sells nothing but cheese
The queen appeared for a moment on the balcony
He fixed the leaking roof with a sheet of tin
The wolves came down as far as the orchard
The dentist has an aquarium beside the sofa
The tourists photographed a stork on its nest
A sudden frost ruined the whole crop of cotton
They rolled the heavy barrel down the slope
The referee looked for his whistle in every pocket
The potter shaped a tall jug out of clay
The parade turned left in front of the theatre
She mixed blue and yellow on her palette
The widow gave the coat to a beggar
He wound the thread carefully around the spool
The gulls followed the plough across the hill
The engineer drew the pump on a napkin
A lizard warmed itself on the tombstone
The twins built a raft out of bamboo
The violinist tuned her strings before the rehearsal
The old king was buried with his sword
The committee met in a room above the pharmacy
He brushed the crumbs from his beard
The shepherd carved a flute from a reed
The cook burned his thumb on the kettle
The detective found a hair on the carpet
""".strip().splitlines()
)


def last_word(sentence: str) -> str:
    """What a word-span answer repeats of a sentence."""
    return sentence.rsplit(" ", 1)[1]
