"""What tokens, requests and months cost: at an API, on rented hardware and on one's machines."""
