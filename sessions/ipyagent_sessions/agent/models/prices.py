"""What a response cost, from pydantic-ai's own price list (genai-prices)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse


def cost_usd(response: ModelResponse) -> float | None:
    """US dollars for one response, or None when nobody knows (DESIGN section 5: never 0 for unknown).

    What the provider or a script reported goes before the price list.  A model behind an address of your own has no price
    unless the list knows the address.
    """
    if response.usage.cost is not None:
        return float(response.usage.cost)
    if not response.model_name:
        return None
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError):  # an unknown model or provider; counts that cannot be priced
        return None
