"""What elementary functions know of a floating-point type: its layout and polynomials.

Coefficients are lowest degree first. Those of float32 are minimax fits, rounded to float32 one
after the other with the rest refitted; those of float64 interpolate at Chebyshev nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """A binary floating-point type, and what `math` needs to compute in it."""

    bits: int
    fraction: int
    """Bits of the fraction."""
    ln2_high: float
    """ln 2 to so few bits that its product with an exponent is exact."""
    exp_range: tuple[float, float]
    """Beyond these exp is infinite and zero."""
    tanh_limit: float
    """Where tanh has become 1."""
    exp: tuple[float, ...]
    """(expm1(r) - r) / r^2 on +-ln2/2, for exp."""
    expm1: tuple[float, ...]
    """The same, for tanh, where no 1 hides the error."""
    half_pi: tuple[float, float, float]
    """pi/2 as a sum, each part rounded to the type."""
    trigonometric_limit: float
    """How large |x| may be for the polynomials of sin and cos, and n = x 2/pi to be near enough."""
    sin: tuple[float, ...]
    """(sin(r) / r - 1) / r^2 in r^2, |r| just over pi/4."""
    cos: tuple[float, ...]
    """cos(r) in r^2, |r| just over pi/4."""

    @property
    def bias(self) -> int:
        """The exponent of 1.0 as stored."""
        return (1 << (self.bits - self.fraction - 2)) - 1

    @property
    def least_exponent(self) -> int:
        """The least float above zero is 2 to minus this."""
        return self.bias + self.fraction - 1

    @property
    def magic(self) -> float:
        """1.5 * 2^fraction: adding it rounds to an integer, found in the low bits."""
        return 1.5 * 2.0**self.fraction

    @property
    def magic_bits(self) -> int:
        """The bits of `magic`."""
        return ((self.bias + self.fraction) << self.fraction) | 1 << (self.fraction - 1)

    @property
    def ln2_low(self) -> float:
        """What `ln2_high` lacks."""
        return _LN2_LOW_64 if self.bits == 64 else math.log(2) - self.ln2_high


_LN2_LOW_64 = 2.8235290563031577e-13  # ln 2 - ln2_high, which a float64 ln 2 does not tell

_EXPM1_64 = (
    0.5,
    0.1666666666666667,
    0.04166666666666667,
    0.008333333333326136,
    0.0013888888888883748,
    0.00019841269874820627,
    2.4801587325547743e-05,
    2.7557255400206422e-06,
    2.75572736431103e-07,
    2.5105217004720745e-08,
    2.0914686968086876e-09,
)  # relative error 8.7e-19
FORMATS = {
    "float": Format(
        bits=32,
        fraction=23,
        ln2_high=0.693359375,  # nine significant bits
        exp_range=(89.0, -104.0),
        tanh_limit=10.0,
        # Relative error 1.5e-8.
        exp=(
            0.5,
            0.16666539013385773,
            0.0416664257645607,
            0.008367153815925121,
            0.0013938711490482092,
        ),
        # 4.4e-10.
        expm1=(
            0.5,
            0.1666666716337204,
            0.041666485369205475,
            0.008333208039402962,
            0.0013933115405961871,
            0.00019944223458878696,
        ),
        half_pi=(1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
        trigonometric_limit=2.0**18,
        # Relative error 4.7e-9, for |r| up to 0.81.
        sin=(-0.16666652262210846, 0.008332008495926857, -0.00019494417938403785),
        # 1.4e-10.
        cos=(1.0, -0.5, 0.04166664183139801, -0.001388711971230805, 2.4410059268120676e-05),
    ),
    "double": Format(
        bits=64,
        fraction=52,
        ln2_high=float.fromhex("0x1.62e42fefa3p-1"),  # 42 significant bits
        exp_range=(710.0, -746.0),
        tanh_limit=20.0,
        exp=_EXPM1_64,
        expm1=_EXPM1_64,
        half_pi=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
        trigonometric_limit=2.0**40,
        # Relative error 3.5e-18, for |r| up to 0.786.
        sin=(
            -0.16666666666666632,
            0.008333333333322462,
            -0.00019841269829822474,
            2.755731369158802e-06,
            -2.5050757449096067e-08,
            1.5896729472039749e-10,
        ),
        # 4.8e-20.
        cos=(
            1.0,
            -0.5,
            0.0416666666666666,
            -0.0013888888888874448,
            2.480158728964352e-05,
            -2.755731439028831e-07,
            2.087572752610029e-09,
            -1.135983040327386e-11,
        ),
    ),
}
"""By LLVM's name."""

# log(1 + f) = f - f^2/2 + f^3 LOG(f) on [sqrt(1/2) - 1, sqrt(2) - 1], float32; 6e-9.
LOG = (
    0.3333333134651184,
    -0.25000834465026855,
    0.20001275837421417,
    -0.1662289798259735,
    0.1420021504163742,
    -0.13163268566131592,
    0.1277463585138321,
    -0.07642891258001328,
)
# 2 atanh(s) = 2 s + s^3 ATANH(s^2) for 1 + f = (1 + s) / (1 - s), float64; 5e-18.
ATANH = (
    0.666666666666667,
    0.39999999999902053,
    0.2857142862529218,
    0.22222211213259255,
    0.18182884749449021,
    0.15331838656822477,
    0.14615245981730138,
)
# 2^r = 1 + r EXP2(r) on +-1/2, float32; 3.3e-9.
EXP2 = (
    0.6931471824645996,
    0.24022647738456726,
    0.05550358071923256,
    0.009618503041565418,
    0.0013391890097409487,
    0.00015329234884120524,
)
# erf(x) = x + x ERF_SMALL(x^2) on [0, 0.875], float32; 1.5e-8.
ERF_SMALL = (
    0.12837915122509003,
    -0.37612512707710266,
    0.11282111704349518,
    -0.026780076324939728,
    0.005016356240957975,
    -0.0006124880746938288,
)
# log2(1 - erf(x)) = x ERF_LARGE(x) on [0.875, 4], float32; 1e-9 of the result of erf.
ERF_LARGE = (
    -1.6282579898834229,
    -0.9164848327636719,
    -0.15300676226615906,
    0.034053582698106766,
    -0.005145744886249304,
    0.00043849871144630015,
    -1.3451970517053269e-05,
)
ERF_SPLIT = 0.875
# atan(t) = t + t^3 ATAN(t^2) on [0, tan(pi/8)], float64; 3.8e-15.
ATAN = (
    -0.3333333333333092,
    0.1999999999772267,
    -0.14285713930121083,
    0.11111089636748975,
    -0.09090255650287048,
    0.07681041199223086,
    -0.06550877951931976,
    0.051687230674895245,
    -0.027231156457278288,
)
# log2((1 + s) / (1 - s)) = s LOG2_WIDE(s^2) for pow of float32, in float64; 4e-12.
LOG2_WIDE = (
    2.885390081790167,
    0.9617966732479734,
    0.5770836018561417,
    0.4116717493619322,
    0.3407474487667423,
)
# 2^r on +-1/2, likewise; 2e-9.
EXP2_WIDE = (
    0.9999999999199303,
    0.6931472067310704,
    0.2402265149771877,
    0.055503271702006335,
    0.009617995461632224,
    0.001340044996799063,
    0.00015477719255653792,
)
