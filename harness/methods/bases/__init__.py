"""What several methods share: the base of all, cuts of edges and of vertices, mini-batches and their kinds."""
