"""What a ticket costs, in cents.  Grown over the years; nobody dares to touch it."""


def fare(age, zones, weekday, hour, card):
    if zones == 1:
        price = 240
    else:
        if zones == 2:
            price = 310
        else:
            if zones == 3:
                price = 420
            else:
                price = 555
    if age < 6:
        return 0
    else:
        if age < 15:
            price = price // 2
        else:
            if age >= 65:
                if weekday < 5:
                    if hour >= 9:
                        price = price * 3 // 4
                else:
                    price = price * 3 // 4
    if card == "half":
        price = price // 2
    elif card == "year":
        return 0
    if weekday < 5:
        if hour >= 6:
            if hour < 9:
                price = price + 50
    return price
