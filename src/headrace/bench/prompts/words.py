"""Words for synthetic prompts.

Random words rather than random token ids: ids that never stand together in a text send tokens of a
mixture of experts to unusual experts, and no draft model guesses what follows them. Words in random
order are still no text; `Passages` of a real one come nearest to what users send.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence
from typing import Protocol

from headrace.errors import ConfigError

# Common, short, lower case: one token each in most vocabularies, so that lengths come out exactly.
_LISTED = """
    able about above act add after again age agree air all allow almost alone along already also
    always among amount and animal answer any appear apple area arm army around arrive art ask at
    autumn away baby back bad bag ball bank base basic battle beach bear beat beauty because become
    bed before begin behind believe below best better between big bird birth black blood blue board
    boat body bone book border born both bottom box boy branch brave bread break bridge bright bring
    broad brother brown build burn bus business busy but butter buy cake call calm camp capital car
    card care carry case cat catch cause center central century certain chain chair chance change
    chapter charge check child choice choose church circle city claim class clean clear climb clock
    close cloth cloud coast coat coffee cold collect color come common company complete computer
    consider contain control cook cool copper copy corn corner correct cost cotton count country
    course court cover cow create credit crime cross crowd cry culture cup current cut dance danger
    dark data date daughter day dead deal dear death decide deep degree demand depend design desk
    detail develop die differ dinner direct discover distance divide doctor dog dollar door double
    doubt down draw dream dress drink drive drop dry during dust duty each ear early earth east easy
    eat edge education effect egg eight either electric else employ empty end enemy energy engine
    enjoy enough enter equal escape even evening event ever every exact example except exercise
    expect explain express eye face fact factory fail fair fall family famous far farm fast father
    fear feed feel few field fight figure fill film final find fine finger finish fire first fish
    fit five flat flight floor flow flower fly follow food foot for force foreign forest forget form
    forward four free fresh friend from front fruit full fun future game garden gas gate gather
    general gentle get gift girl give glass go gold good govern grain grand grass gray great green
    ground group grow guess guide gun habit hair half hall hand happen happy hard harvest hat have
    head health hear heart heat heavy help her here high hill history hit hold hole holiday home
    honest hope horse hospital hot hotel hour house how huge human hundred hunt hurry ice idea if
    image important inch include increase industry ink insect inside iron island issue job join
    journey judge jump just keep key kill kind king kitchen knee knife know labor lady lake lamp
    land language large last late laugh law lay lead leaf learn least leather leave left leg lesson
    let letter level library lie life lift light like limit line lip list listen little live local
    long look lose loss lot loud love low luck lunch machine main make man many map mark market
    marry mass master match matter may meal mean measure meat meet member memory metal method middle
    mile milk mill mind minute mirror miss mix model modern moment money month moon moral more
    morning most mother mountain mouth move much music must name narrow nation nature near neck
    need neighbor never new news next nice night nine noise none noon north nose note nothing notice
    now number object ocean offer office often oil old once one only open operate opinion orange
    order other our out outside over own page pain paint pair paper parent park part party pass past
    path pattern pay peace people perfect perhaps period person picture piece pink place plain plan
    plane plant plate play please plenty point police poor popular position possible post pound
    power practice prepare present press pretty price print prison private problem produce product
    promise proper protect proud prove public pull pure push put quality quarter queen question
    quick quiet quite race radio rain raise range rate rather reach read ready real reason receive
    record red region remain remember repeat reply report rest result return rice rich ride right
    ring rise river road rock roll roof room root rope rough round row royal rule run safe sail salt
    same sand save say scale school science sea search season seat second secret see seed seem
    select sell send sense serve set settle seven several shade shake shape share sharp sheep sheet
    shelf shine ship shirt shoe shop short should shoulder shout show sick side sign silence silk
    silver similar simple since sing single sister sit six size skill skin sky sleep slow small
    smell smile smoke smooth snow social soft soil soldier solid some son song soon sound soup south
    space speak special speed spell spend spirit spoon sport spot spread spring square stage stamp
    stand star start state station stay steam steel step stick still stone stop store storm story
    strange stream street strong student study subject success such sudden sugar suit summer sun
    supply support sure surface sweet swim system table tail take talk tall taste tax tea teach team
    tell ten test than thank that theater their then theory there thick thin thing think third
    thousand three throw ticket time tired title to today together tomorrow tonight too tool top
    total touch toward town trade train travel tree trial trip trouble true trust truth try turn
    twelve twenty two type under understand union unit until up use usual valley value very view
    village visit voice vote wait walk wall want war warm wash watch water wave way weak wear
    weather week weight well west wet what wheel when where which while white who whole why wide
    wife wild will win wind window wine winter wise wish with within without woman wonder wood wool
    word work world worry worth write wrong yard year yellow yes yesterday yet young zero
    """

WORDS: tuple[str, ...] = tuple(_LISTED.split())


class WordSource(Protocol):
    """Pieces of text, each with the space before it."""

    @property
    def identity(self) -> bytes:
        """Equal ones draw the same pieces from equal sources."""

    def draw(self, count: int, source: random.Random) -> Sequence[str]:
        """`count` pieces; asked for fewer with the same source, the first of the same ones."""


class RandomWords:
    """Words of WORDS, each as likely as the others."""

    identity = b"words:" + hashlib.sha256(" ".join(WORDS).encode()).digest()

    def __init__(self) -> None:
        self._pieces = tuple(f" {word}" for word in WORDS)

    def draw(self, count: int, source: random.Random) -> Sequence[str]:
        """Independent draws."""
        return source.choices(self._pieces, k=count)


class Passages:
    """Running words of a text that somebody wrote, from a random one on, and round its end."""

    def __init__(self, text: str) -> None:
        """Raises ConfigError for a text without words."""
        self._pieces = tuple(re.findall(r"\s+\S+", f" {text}"))
        self.identity = b"passages:" + hashlib.sha256(text.encode()).digest()
        if not self._pieces:
            raise ConfigError("the text for prompts has no words; give one that has")

    def draw(self, count: int, source: random.Random) -> Sequence[str]:
        """A passage of `count` words."""
        start = source.randrange(len(self._pieces))
        first = self._pieces[start : start + count]
        rounds, rest = divmod(count - len(first), len(self._pieces))
        return (*first, *self._pieces * rounds, *self._pieces[:rest])
