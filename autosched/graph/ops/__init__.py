"""The operators, one definition each; importing this package registers all of them."""

from autosched.graph.ops import adjoint as adjoint
from autosched.graph.ops import conv as conv
from autosched.graph.ops import deform_conv as deform_conv
from autosched.graph.ops import einsum as einsum
from autosched.graph.ops import grid_sample as grid_sample
from autosched.graph.ops import host as host
from autosched.graph.ops import host_adjoint as host_adjoint
from autosched.graph.ops import index as index
from autosched.graph.ops import linear as linear
from autosched.graph.ops import non_maximum_suppression as non_maximum_suppression
from autosched.graph.ops import norm as norm
from autosched.graph.ops import packed as packed
from autosched.graph.ops import pointwise as pointwise
from autosched.graph.ops import pool as pool
from autosched.graph.ops import quantised as quantised
from autosched.graph.ops import recurrent as recurrent
from autosched.graph.ops import reduce as reduce
from autosched.graph.ops import refused as refused
from autosched.graph.ops import resize as resize
from autosched.graph.ops import roi_align as roi_align
from autosched.graph.ops import row_range as row_range
from autosched.graph.ops import suppression as suppression
from autosched.graph.ops import transforms as transforms
from autosched.graph.ops import trees as trees
from autosched.graph.ops import unpool as unpool
from autosched.graph.ops import views as views
from autosched.graph.ops.registry import OPERATORS, find

__all__ = ["OPERATORS", "find"]
