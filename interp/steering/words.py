"""Plain words for generated data sets: things, and adjectives by polarity."""

from __future__ import annotations

POSITIVE = (
    "good great fine nice lovely happy kind brave calm bright clever charming pleasant superb perfect splendid "
    "wonderful excellent amazing beautiful brilliant cheerful delightful elegant fantastic friendly funny generous "
    "gentle glad glorious graceful helpful honest hopeful impressive inspiring joyful lively loyal magnificent "
    "marvelous outstanding peaceful playful popular positive precious proud radiant remarkable safe smart strong "
    "sweet terrific thrilling warm wise worthy"
).split()
NEGATIVE = (
    "bad awful poor nasty ugly sad cruel cowardly angry gloomy stupid horrid unpleasant dreadful faulty miserable "
    "terrible horrible disgusting hideous boring bitter annoying clumsy dismal hostile tragic greedy harsh sorry "
    "shameful awkward useless dishonest hopeless disappointing depressing tearful dull treacherous pathetic "
    "lousy inferior violent rude hated negative worthless ashamed rotten pitiful dangerous foolish weak "
    "sour frightening painful cold mean evil"
).split()
NEUTRAL = (
    "old new red blue green round square tall short wide narrow long flat wooden metal local daily weekly northern "
    "southern eastern western central modern digital typical usual recent double single"
).split()
SUBJECTS = (
    "film book meal house song town garden teacher game story hotel letter play train party market school river "
    "shop singer"
).split()
THINGS = (
    "tea, rain, music, dogs, winter, cooking, trains, poetry, football, mountains, coffee, gardening, museums, "
    "camping, chess, dancing, puzzles, snow, swimming, painting, cycling, fishing, theatre, cats"
).split(", ")
