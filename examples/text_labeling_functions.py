"""Label short texts with hand-written keyword rules: is a product review positive or negative?

    python examples/text_labeling_functions.py

Each rule votes where one of its words occurs and abstains everywhere else. The label model finds out from the votes
alone how far each rule can be trusted; a few labels help it. The rest of the truth only scores the result.
"""

import re

import numpy as np

from dpssl import LabelModel

ABSTAIN, NEGATIVE, POSITIVE = -1, 0, 1

REVIEWS = {
    POSITIVE: """
        Great sound and the battery lasts for days.
        I love this kettle, it boils in a minute.
        Works perfectly, exactly what I wanted.
        Excellent value, I would buy it again.
        My daughter loves it and uses it every day.
        Easy to set up and very quiet.
        Not bad at all for the price, great little lamp.
        The best purchase I have made this year.
        Arrived early, well packed, works perfectly.
        A wonderful gift, she was happy with it.
        Comfortable shoes, I can walk in them all day.
        Great screen, fast, and easy to carry.
        I was worried it would break, but it is solid and works perfectly.
        Cheap but excellent, I recommend it.
        Happy with the colour and the fit.
        Love the smell, and it lasts.
        Never had a problem with it, excellent build.
        Sturdy, simple, and easy to clean.
        Fast delivery and a great price.
        It replaced my old broken one and is so much better. Love it.
        Highly recommend this to anyone with a small kitchen.
        The best headphones I own, comfortable for hours.
        The manual is poor but the machine itself is excellent.
        Solid quality, no complaints.
        Beautiful design and it feels sturdy.
        Perfect for travelling, I recommend it.
        So easy that my grandfather is happy with it.
        Not cheap, but it works and I love it.
        A great book, I could not put it down.
        Good product, good service, fast answer.
    """,
    NEGATIVE: """
        It broke after two days.
        Terrible smell, I had to throw it away.
        A waste of money, do not buy it.
        The zip was broken when it arrived.
        Very disappointed, it looks nothing like the picture.
        Stopped working within a week and I want a refund.
        Poor quality, the paint comes off.
        The worst customer service I have met.
        Great idea, terrible execution.
        Too slow and too loud, I returned it.
        Cheap plastic that broke at once.
        I would love to like it, but it stopped working.
        It is useless without the cable, which is not included.
        Disappointed with the battery, it is dead by noon.
        Never again, the worst blender of my life.
        Refund refused, what a waste of time.
        Flimsy, and the handle is loose.
        Works for an hour, then it is useless.
        Awful taste, nobody in the family liked it.
        I returned it because the screen was broken.
        The shirt shrank and the colour is poor.
        Slow delivery and a damaged box.
        Sadly the lamp flickers, so I sent it back.
        Not great, the app crashes all the time.
        Do not recommend, it is flimsy and loud.
        Looks perfect in the photo, poor in the hand. Disappointed.
        Terrible instructions and two missing screws.
        The pen leaks, awful.
        Broke in the wash, cheap material.
        It was a gift and I am embarrassed, the quality is poor.
    """,
}


def says(label, *words):
    """A labeling function that votes `label` where one of the words occurs."""
    pattern = re.compile(rf"\b({'|'.join(words)})\b", re.IGNORECASE)
    return lambda text: label if pattern.search(text) else ABSTAIN


LABELING_FUNCTIONS = {
    "great": says(POSITIVE, "great", "excellent", "wonderful", "beautiful"),
    "love": says(POSITIVE, "loves?", "happy"),
    "works": says(POSITIVE, "works", "perfect", "perfectly"),
    "recommend": says(POSITIVE, "recommend", "best", "good"),
    "handy": says(POSITIVE, "easy", "comfortable", "sturdy", "solid", "fast", "quiet"),
    "price": says(POSITIVE, "cheap", "price", "value"),
    "broken": says(NEGATIVE, "broken?", "break", "stopped", "damaged", "dead", "leaks", "crashes"),
    "poor": says(NEGATIVE, "poor", "terrible", "awful", "worst", "flimsy"),
    "return": says(NEGATIVE, "refund", "returned", "sent", "waste", "throw"),
    "regret": says(NEGATIVE, "disappointed", "useless", "never", "sadly", "problem"),
    "nuisance": says(NEGATIVE, "slow", "loud", "missing", "loose"),
    "not": says(NEGATIVE, "not", "nothing", "nobody", "no"),
}


def main():
    texts, truth = [], []
    for label, block in REVIEWS.items():
        lines = [line.strip() for line in block.strip().splitlines()]
        texts += lines
        truth += [label] * len(lines)
    truth = np.array(truth)
    votes = np.array([[lf(text) for lf in LABELING_FUNCTIONS.values()] for text in texts])  # (n, K)

    model = LabelModel(n_classes=2).fit(votes)
    print("\n".join(f"LF {k}: {name}" for k, name in enumerate(LABELING_FUNCTIONS)))
    print(model.lf_summary())

    known = np.where(np.arange(len(texts)) % 5 == 0, truth, -1)  # what someone has labelled by hand
    models = {
        "majority vote": LabelModel(n_classes=2, variant="majority").fit(votes),
        "LabelModel": model,
        f"LabelModel with {np.sum(known >= 0)} labels": LabelModel(n_classes=2).fit(votes, y=known),
    }
    rest = known == -1
    print(f"\nAccuracy on the {rest.sum()} reviews that nobody has labelled (a tie counts half):")
    for name, fitted in models.items():
        print(f"  {name:<26} {fitted.score(votes[rest], truth[rest]):.1%}")

    print("\nLeast certain reviews:")
    proba = model.predict_proba(votes)
    for row in proba.max(axis=1).argsort(kind="stable")[:5]:
        print(f"  P(positive) = {proba[row, POSITIVE]:.2f}  {texts[row]}")


if __name__ == "__main__":
    main()
