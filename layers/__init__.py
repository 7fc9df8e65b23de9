"""What implements the services, one module per service, and the algebra that wires them."""
